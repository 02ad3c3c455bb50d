"""The pictures of the visual guide; learn/draw.py writes them."""
