"""Tuning of DeepEP's normal mode. Engines ask for it before they know which mode they use; nothing here reads it."""

from __future__ import annotations

__all__ = ["Config", "combine_config", "dispatch_config"]

#: Ranks that DeepEP connects by NVLink.
_NVL_RANKS = 8
_TOP_K = 128
_SCALES = 128
_META_BYTES = 8


class Config:
    """Numbers of SMs and of tokens that are sent and received at a time."""

    def __init__(
        self,
        num_sms: int = 20,
        num_max_nvl_chunked_send_tokens: int = 6,
        num_max_nvl_chunked_recv_tokens: int = 256,
        num_max_rdma_chunked_send_tokens: int = 6,
        num_max_rdma_chunked_recv_tokens: int = 256,
    ) -> None:
        nvl, chunks = num_max_nvl_chunked_send_tokens, num_max_rdma_chunked_send_tokens
        if num_sms < 0:
            raise ValueError(f"num_sms is {num_sms}; it must not be negative")
        for name, sent in {"num_max_nvl_chunked_send_tokens": nvl, "num_max_rdma_chunked_send_tokens": chunks}.items():
            if sent <= 0:
                raise ValueError(f"{name} is {sent}; it must be positive")
        if num_max_nvl_chunked_recv_tokens <= nvl:
            raise ValueError(
                f"num_max_nvl_chunked_recv_tokens is {num_max_nvl_chunked_recv_tokens}; it must be more than "
                f"num_max_nvl_chunked_send_tokens, {nvl}"
            )
        self.num_sms = num_sms
        self.num_max_nvl_chunked_send_tokens = num_max_nvl_chunked_send_tokens
        self.num_max_nvl_chunked_recv_tokens = num_max_nvl_chunked_recv_tokens
        self.num_max_rdma_chunked_send_tokens = chunks
        self.num_max_rdma_chunked_recv_tokens = -(-num_max_rdma_chunked_recv_tokens // chunks) * chunks
        if self.num_max_rdma_chunked_recv_tokens < 2 * chunks:
            raise ValueError(
                f"num_max_rdma_chunked_recv_tokens is {num_max_rdma_chunked_recv_tokens}; it must be at least twice "
                f"num_max_rdma_chunked_send_tokens, {2 * chunks}"
            )

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes that DeepEP's normal mode would want for NVLink; nothing is taken by it here."""
        ranks, rdma_ranks = min(num_ranks, _NVL_RANKS), max(num_ranks // _NVL_RANKS, 1)
        token = hidden_bytes + _META_BYTES + _TOP_K * (8 + 4) + _SCALES * 4
        each = (2 * rdma_ranks + 3) * 4 + self.num_max_nvl_chunked_recv_tokens * token
        return _aligned(self.num_sms // 2 * ranks * each)

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """The same for RDMA."""
        if num_ranks <= _NVL_RANKS:
            return 0
        token = hidden_bytes + _META_BYTES + _TOP_K * (8 + 4) + _SCALES * 4 + 16
        each = (_NVL_RANKS * 2 + 2) * 4 + self.num_max_rdma_chunked_recv_tokens * token
        return _aligned(self.num_sms // 2 * (num_ranks // _NVL_RANKS) * each * 2)

    def __repr__(self) -> str:
        numbers = ", ".join(str(value) for value in vars(self).values())
        return f"Config({numbers})"


def _aligned(size: int) -> int:
    return -(-size // 128) * 128


#: By number of ranks, as DeepEP has them: chunks of NVLink and of RDMA.
_DISPATCH = {
    2: (24, 256, 6, 128),
    4: (6, 256, 6, 128),
    8: (6, 256, 6, 128),
    16: (36, 288, 20, 128),
    24: (32, 288, 8, 128),
    32: (32, 288, 8, 128),
    48: (32, 288, 8, 128),
    64: (32, 288, 8, 128),
    96: (20, 480, 12, 128),
    128: (20, 560, 12, 128),
    144: (32, 720, 12, 128),
    160: (28, 720, 12, 128),
}
_COMBINE = {
    2: (10, 256, 6, 128),
    4: (9, 256, 6, 128),
    8: (4, 256, 6, 128),
    16: (4, 288, 12, 128),
    24: (1, 288, 8, 128),
    32: (1, 288, 8, 128),
    48: (1, 288, 8, 128),
    64: (1, 288, 8, 128),
    96: (1, 480, 8, 128),
    128: (1, 560, 8, 128),
    144: (2, 720, 8, 128),
    160: (2, 720, 8, 128),
}


def dispatch_config(num_sms: int, num_ranks: int) -> Config:
    """What DeepEP recommends for dispatch."""
    return _of(_DISPATCH, num_sms, num_ranks)


def combine_config(num_sms: int, num_ranks: int) -> Config:
    """What DeepEP recommends for combine."""
    return _of(_COMBINE, num_sms, num_ranks)


def _of(table: dict[int, tuple[int, int, int, int]], num_sms: int, num_ranks: int) -> Config:
    if num_ranks not in table:
        known = ", ".join(str(ranks) for ranks in table)
        raise ValueError(f"num_ranks is {num_ranks}; it must be one of {known}")
    return Config(num_sms, *table[num_ranks])
