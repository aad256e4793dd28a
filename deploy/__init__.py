"""What it takes to run it elsewhere; only the image is made by programs."""
