"""What the numbers say, in sentences, and numbers as people read them."""
