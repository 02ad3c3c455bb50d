"""The names of a graph's inputs, outputs and axes, as optimum and transformers.js expect them."""

BATCH, LENGTH = "batch_size", "sequence_length"
INPUT_IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
HIDDEN, LOGITS = "last_hidden_state", "logits"
PAST, POSITIONS, PAST_LENGTH = "past_key_values", "position_ids", "past_sequence_length"
PRESENT = "present"  # the outputs that are the past of the next call
START, END = "start_logits", "end_logits"
