"""Random selections of documents from pools."""

from __future__ import annotations

import numpy as np

from seachange.kernels.compiler import compiled


@compiled
def draw_documents(pool_documents, pools, shown, uniforms, documents, actions):
    """Fill documents[t] with random documents of visit t's pool, in random order, with shown[t] at actions[t].

    A pool ends at its first -1 and has at least as many documents as are drawn. ``uniforms`` (n, drawn) are the draws.
    """
    n_drawn = documents.shape[1]
    pool = np.empty(pool_documents.shape[1], pool_documents.dtype)
    for t in range(pools.size):
        size = 0
        for document in pool_documents[pools[t]]:
            if document < 0:
                break
            pool[size] = document
            if document == shown[t]:
                pool[0], pool[size] = pool[size], pool[0]
            size += 1
        for i in range(1, n_drawn):
            j = i + int(uniforms[t, i] * (size - i))
            pool[i], pool[j] = pool[j], pool[i]
        slot = int(uniforms[t, 0] * n_drawn)
        pool[0], pool[slot] = pool[slot], pool[0]
        documents[t] = pool[:n_drawn]
        actions[t] = slot
