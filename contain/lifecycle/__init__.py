"""One job from request to final reply. Read ``life`` first; ``loop`` feeds it, ``host`` speaks for the host."""
