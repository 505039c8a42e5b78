"""How a sample's replies are drawn: greedily, or with a seed of the sample's own."""

import hashlib

from judgelm.records import Sampling


def sampling_for(
    sample_id: str, *, temperature: float, seed: int, max_tokens: int, stop: tuple[str, ...] = ()
) -> Sampling:
    """Greedy at temperature 0; otherwise the seed is made of `seed` and the sample's id, so that no place matters."""
    if temperature == 0:
        return Sampling(max_tokens=max_tokens, stop=stop)
    digest = hashlib.blake2b(f"{seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=4).digest()
    return Sampling(max_tokens=max_tokens, stop=stop, temperature=temperature, seed=int.from_bytes(digest, "big"))
