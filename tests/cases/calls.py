"""Calls of the library with odd values: one line per case. An `end` of None means that it must work."""

from making import Case

CALLS = [
    Case(
        "a learning rate of NaN", "Adam(MiniBERT(MiniBertConfig(num_layers=1)).flat, lr=nan)", ValueError, "lr is nan"
    ),
    Case("eps of True", "MiniBertConfig(layer_norm_eps=True)", ValueError, "layer_norm_eps is True"),
    Case("eps of infinity", "MiniBertConfig(layer_norm_eps=inf)", ValueError, "layer_norm_eps is inf"),
]
