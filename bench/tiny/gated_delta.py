"""The gated delta rule in chunks, for training: what transformers computes without its kernel package, made lean.

Over tokens t, per head, with a state S [K, V]:  S = exp(g_t) S;  S += k_t beta_t (v_t - S^T k_t)^T;  o_t = S^T q_t
(Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024). Inside a chunk of 64 tokens the updates solve one
triangular system, U = (I + A)^-1 (beta V - beta exp(G) K S), so only the chunks are walked in order.
The signature is transformers' own; `install` puts this function in its place.
"""
import torch

CHUNK = 64


def normalise(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def chunk_gated_delta_rule(query, key, value, g, beta, **unused):
    """query, key [B, T, H, K], value [B, T, H, V], g (log decay) and beta [B, T, H]; T a multiple of 64.

    Returns the outputs [B, T, H, V] and, as there is no cache in training, no state.
    """
    shared = value.shape[2] // query.shape[2]               # transformers 5.17 repeats the key heads itself, 5.24 does not
    query, key = (x.repeat_interleave(shared, 2) for x in (query, key))
    q, k, v, g, beta = (x.transpose(1, 2).float().unflatten(2, (-1, CHUNK)) for x in (query, key, value, g, beta))
    q, k = normalise(q) * q.shape[-1] ** -0.5, normalise(k)                              # [B, H, N, 64, K]
    total = g.cumsum(-1)                                                                 # [B, H, N, 64]
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
    k_beta = k * beta[..., None]
    system = (k_beta @ k.mT) * decay
    targets = torch.cat([v * beta[..., None], k_beta * total.exp()[..., None]], -1)
    u, w = torch.linalg.solve_triangular(system, targets, upper=False, unitriangular=True).split(
        [v.shape[-1], k.shape[-1]], -1)
    inside = (q @ k.mT) * decay
    q = q * total.exp()[..., None]
    k = k * (total[..., -1:] - total).exp()[..., None]
    carry = total[..., -1].exp()[..., None, None]
    state, outputs = torch.zeros_like(k[:, :, 0].mT @ v[:, :, 0]), []
    for q_n, k_n, u_n, w_n, inside_n, carry_n in zip(*(x.unbind(2) for x in (q, k, u, w, inside, carry))):
        update = u_n - w_n @ state
        outputs.append(q_n @ state + inside_n @ update)
        state = carry_n * state + k_n.mT @ update
    return torch.stack(outputs, 2).flatten(2, 3).transpose(1, 2).to(query.dtype), None


def install():
    from transformers.models.qwen3_5 import modeling_qwen3_5
    modeling_qwen3_5.torch_chunk_gated_delta_rule = chunk_gated_delta_rule
