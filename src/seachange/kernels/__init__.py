"""Hot loops: numba functions on plain arrays. No classes, no checks, no random numbers.

Two shapes cover all three kinds of context. ``rows`` is (n, R, D) and coefficients are (B, D), with (R, B) = (1, K) if
actions share a context (f(x, a) = [x, 1] in action a's block), and (K, 1) if each action has its own feature vector. A
log without contexts is the shared case with rows of shape (1, 1, 1): an axis of length 1 stands for all rounds.
``mask`` is likewise (n, K) or (1, K).
"""
