"""What the goldens were generated from, for both sides."""

NUM_STEPS, NUM_FLOW_STEPS, CFG = 15, 10, 2.0
TEXT = [5, 17, 3, 90, 44, 8, 61]
PROMPT_TEXT = [11, 7, 29, 100]
