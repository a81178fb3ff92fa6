"""What a script of this folder needs of the machine."""


def torch_on_a_gpu():
    """PyTorch where it has a GPU; None, and why printed, where not."""
    try:
        import torch
    except ImportError:
        print("not run: no PyTorch")
        return None
    if not torch.cuda.is_available():
        print("not run: no GPU")
        return None
    return torch
