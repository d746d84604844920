"""Models: loading (Hugging Face, peft), the ladder of small models, the forward pass in which groups share prompts."""
