"""One job from request to final reply. Read ``life`` first; ``loop`` feeds it, ``host`` is the far end of the protocol."""
