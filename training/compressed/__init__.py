"""Networks as small files: sparse arrays of shared weights, coded by Huffman's codes."""
