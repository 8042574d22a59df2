"""What a training leaves in its folder, and how it is read again."""
