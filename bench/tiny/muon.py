"""Muon for the hidden matrices, AdamW for everything else, over float32 masters of bf16 parameters.

Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/) replaces the momentum of a weight matrix by the
nearest semi-orthogonal one, found by five Newton-Schulz steps, so that every direction of the matrix moves alike:

    M = mu M + g,   O = NewtonSchulz(g + mu M),   W = (1 - lr wd) W - lr 0.2 sqrt(max(rows, cols)) O

The factor gives O the root mean square of an AdamW update, so learning rate and weight decay are AdamW's (Liu et al.
2025, "Muon is scalable for LLM training", arXiv 2502.16982). Matrices of one shape form one batched Newton-Schulz.
"""
import torch

MOMENTUM, WEIGHT_DECAY = 0.95, 0.1
STEPS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
THINNEST = 32                     # a matrix with a side below this is AdamW's: routers, convolutions, per-head projections


def hidden(name: str, p: torch.Tensor) -> bool:
    """A weight matrix [rows, cols], or matrices [experts, rows, cols], between hidden states."""
    return p.ndim >= 2 and min(p.shape[-2:]) >= THINNEST and not any(part in name for part in ("embed_tokens", "lm_head"))


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """[n, rows, cols] float32 to about the nearest semi-orthogonal matrices, singular values within 0.7 and 1.2."""
    a, b, c = COEFFICIENTS
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Stack:
    """The parameters whose matrices have one shape, and their masters and momenta [n, rows, cols]."""

    def __init__(self, params: list[torch.nn.Parameter]):
        self.params = params
        self.masters = self.gather([p.detach() for p in params])
        self.momentum = torch.zeros_like(self.masters)
        self.scale = 0.2 * max(self.masters.shape[-2:]) ** 0.5

    def gather(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([t.reshape(-1, *t.shape[-2:]) for t in tensors]).float()

    def step(self, lr: float):
        grads = self.gather([p.grad for p in self.params])
        self.momentum.mul_(MOMENTUM).add_(grads)
        update = orthogonal(grads.add_(self.momentum, alpha=MOMENTUM))
        self.masters.mul_(1 - lr * WEIGHT_DECAY).sub_(update, alpha=lr * self.scale)

    def slices(self) -> list[torch.Tensor]:
        """The masters, each in the shape of its parameter."""
        sizes = [p.numel() // (p.shape[-2] * p.shape[-1]) for p in self.params]
        return [part.view(p.shape) for part, p in zip(self.masters.split(sizes), self.params)]


class Masters:
    """The optimiser of a model: `step(lr)` moves the masters and rounds the parameters from them."""

    def __init__(self, model: torch.nn.Module):
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        by_shape = {}
        for name, p in named:
            if hidden(name, p):
                by_shape.setdefault(p.shape[-2:], []).append(p)
        self.stacks = [Stack(params) for params in by_shape.values()]
        self.rest = [p for name, p in named if not hidden(name, p)]
        self.copies = [p.detach().float().clone() for p in self.rest]
        decay, plain = ([c for c in self.copies if (c.ndim >= 2) == matrix] for matrix in (True, False))
        self.adam = torch.optim.AdamW([dict(params=decay, weight_decay=WEIGHT_DECAY), dict(params=plain, weight_decay=0.0)],
                                      lr=0.0, betas=(0.9, 0.95), fused=self.copies[0].is_cuda)

    @torch.no_grad()
    def step(self, lr: float):
        for stack in self.stacks:
            stack.step(lr)
        for group in self.adam.param_groups:
            group["lr"] = lr
        for copy, p in zip(self.copies, self.rest):
            copy.grad = p.grad.float()
        torch.nn.utils.clip_grad_norm_(self.copies, 1.0)
        self.adam.step()
        params = [p for stack in self.stacks for p in stack.params] + self.rest
        masters = [m for stack in self.stacks for m in stack.slices()] + self.copies
        torch._foreach_copy_(params, masters)
        for p in params:
            p.grad = None
