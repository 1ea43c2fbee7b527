"""A small GPT trained by as many processes as wanted: what `validate live` records and times."""
