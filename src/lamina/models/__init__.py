"""What is known of each model: its facts, its names, how its provider frames text, how its tokens count."""
