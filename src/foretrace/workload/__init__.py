"""Floor 3: what is computed: models as data, their parameters, FLOPs and bytes."""

from __future__ import annotations

from foretrace.workload.account import Account as Account
from foretrace.workload.account import Comparison as Comparison
from foretrace.workload.account import account as account
from foretrace.workload.catalogue import load_model as load_model
from foretrace.workload.diffusion import Diffusion as Diffusion
from foretrace.workload.entries import Entry as Entry
from foretrace.workload.files import model_names as model_names
from foretrace.workload.flops import Convention as Convention
from foretrace.workload.flops import Flops as Flops
from foretrace.workload.flops import FlopsOfPart as FlopsOfPart
from foretrace.workload.flops import Recompute as Recompute
from foretrace.workload.flops import flops as flops
from foretrace.workload.hugging_face import from_hf_config as from_hf_config
from foretrace.workload.memory import cache_bytes as cache_bytes
from foretrace.workload.memory import cache_bytes_per_token as cache_bytes_per_token
from foretrace.workload.memory import weight_bytes as weight_bytes
from foretrace.workload.parameters import Model as Model
from foretrace.workload.parameters import Parameters as Parameters
from foretrace.workload.parameters import Part as Part
from foretrace.workload.parameters import layer_parameters as layer_parameters
from foretrace.workload.parameters import parameters as parameters
from foretrace.workload.published import Published as Published
from foretrace.workload.recommender import Interaction as Interaction
from foretrace.workload.recommender import Recommender as Recommender
from foretrace.workload.totals import TotalsOnly as TotalsOnly
from foretrace.workload.transformer import Attention as Attention
from foretrace.workload.transformer import Experts as Experts
from foretrace.workload.transformer import FeedForward as FeedForward
from foretrace.workload.transformer import Latent as Latent
from foretrace.workload.transformer import Layer as Layer
from foretrace.workload.transformer import Norm as Norm
from foretrace.workload.transformer import Positions as Positions
from foretrace.workload.transformer import Reach as Reach
from foretrace.workload.transformer import ReachKind as ReachKind
from foretrace.workload.transformer import Transformer as Transformer
