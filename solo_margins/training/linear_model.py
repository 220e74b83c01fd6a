"""solo-learn's linear classifier with corrections."""

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn import functional as F

from solo_margins import host
from solo_margins.host.repairs.narrow_convolutions_on_the_cpu import allows_channels_last
from solo_margins.host.repairs.trainer_settings import runs_on_cpu


class LinearModel(host.LinearModel):
    """A linear classifier on a pretrained backbone.

    What is different from solo-learn's:

    - It keeps its configuration as ``cfg``, as methods do; callbacks read it.
    - Fewer than 5 classes have a top-5 accuracy: solo-learn's fails in ``topk``.
    - A backbone in which channels-last memory would crash a CPU process keeps contiguous memory.

    Args:
        backbone: with its weights.
        cfg: a parsed linear configuration.
        loss_func: of a training batch whose images were mixed; cross-entropy by default.
        mixup_func: mixes the images and labels of a training batch.
    """

    no_channel_last: bool

    def __init__(
        self,
        backbone: nn.Module,
        cfg: DictConfig,
        loss_func: Callable[..., Tensor] | None = None,
        mixup_func: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(backbone, cfg=cfg, loss_func=loss_func, mixup_func=mixup_func)
        self.cfg = cfg
        if not self.no_channel_last and not allows_channels_last(self, runs_on_cpu(cfg)):
            # The second is what the weights follow, the first what images do.
            self.no_channel_last = cfg.performance.disable_channel_last = True

    def shared_step(self, batch: Any, batch_idx: int) -> Any:
        """Return loss and accuracies of a batch, and how many images it has."""
        if self.training and self.mixup_func is not None:
            return super().shared_step(batch, batch_idx)
        images, labels = batch
        logits = self(images)["logits"]
        loss = F.cross_entropy(logits, labels)
        acc1, acc5 = accuracies(logits, labels)
        return {"batch_size": len(labels), "loss": loss, "acc1": acc1, "acc5": acc5}


def accuracies(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return top-1 and top-5 accuracy in percent; of fewer than 5 classes, the top of all.

    Example:
        >>> logits = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
        >>> accuracies(logits, torch.tensor([0, 1]))
        (tensor([50.]), tensor([100.]))
    """
    best = logits.detach().topk(min(5, logits.shape[1])).indices
    is_right = (best == labels[:, None]).float()
    acc1 = 100 * is_right[:, :1].sum(dim=1).mean(dim=0, keepdim=True)
    acc5 = 100 * is_right.sum(dim=1).mean(dim=0, keepdim=True)
    return acc1, acc5
