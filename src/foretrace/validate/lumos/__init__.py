"""Figure 7 of Lumos: nine scalings of one model, of which one teaches two constants."""
