"""Deep CCA end to end: against cca-zoo's, and in bfloat16 against float32."""

import logging
import warnings
from statistics import mean
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.timing import interleaved, pin_threads, show
from dscca import DCCA, DSDCCA
from dscca.datasets import embedded_digits
from dscca.deep.layers import MLP

WIDTHS, N_COMPONENTS, BATCH, EPOCHS = (400, 400), 20, 750, 10


def main() -> None:
    pin_threads()
    data = embedded_digits()
    against_peer(data)
    in_bfloat16(data)


def against_peer(data: Any) -> None:
    """Time a whole fit, head included: same networks, batches, epochs, optimiser, validation."""

    def ours() -> float:
        model = DCCA(
            N_COMPONENTS,
            WIDTHS,
            epochs=EPOCHS,
            batch_size=BATCH,
            optimizer="adam",
            weight_decay=0.0,
            head_reg=1e-3,
            random_state=0,
            verbose=0,
            device="cpu",
        )
        model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
        return model.score(data.X_test, data.y_test)

    scores: dict[str, float] = {}
    seconds = interleaved(
        {
            "dscca.DCCA": lambda: scores.update(ours=ours()),
            "cca_zoo DCCA": lambda: scores.update(theirs=peer(data)),
        },
        repeats=3,
    )
    floor = seconds["dscca.DCCA"]
    rows = [
        (name, f"{s:.2f}", f"{s / floor:.2f}", f"{tc:.2f}")
        for (name, s), tc in zip(seconds.items(), scores.values(), strict=True)
    ]
    title = f"DCCA, 8,000 digits, nets 400-400-{N_COMPONENTS}, {EPOCHS} epochs"
    show("deep", title, rows, ("", "seconds", "times dscca's", "held-out TC"))


def peer(data: Any) -> float:
    """Train cca-zoo's DCCA as its documentation shows; return the test TC after its linear CCA."""
    import lightning.pytorch as pl
    from cca_zoo.deep import DCCA as ZooDCCA  # noqa: N811
    from cca_zoo.deep import MultiviewDataset
    from cca_zoo.linear import CCA as ZooCCA  # noqa: N811

    from dscca.metrics import total_correlation

    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about workers, logging and checkpoints
        torch.manual_seed(0)
        encoders = [MLP(X.shape[1], WIDTHS, N_COMPONENTS) for X in (data.X_train, data.y_train)]
        sets = [
            MultiviewDataset([X, y])
            for X, y in ((data.X_train, data.y_train), (data.X_val, data.y_val))
        ]
        train = DataLoader(sets[0], batch_size=BATCH, shuffle=True, drop_last=True)
        validation = DataLoader(sets[1], batch_size=len(data.X_val))
        model = ZooDCCA(N_COMPONENTS, encoders, learning_rate=1e-3, reg_covar=1e-4)
        trainer = pl.Trainer(
            max_epochs=EPOCHS,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
        )
        trainer.fit(model, train, validation)
        model.eval()
        with torch.no_grad():
            encode = [
                [z.numpy() for z in model([torch.as_tensor(X), torch.as_tensor(y)])]
                for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test))
            ]
        head = ZooCCA(N_COMPONENTS).fit(encode[0])
        return total_correlation(*head.transform(encode[1]))


def in_bfloat16(data: Any) -> None:
    """Time and held-out TC of DS-DCCA in either precision; the demonstration's networks."""
    precisions, seeds = ("fp32", "bf16"), range(3)
    scores: dict[str, list[float]] = {precision: [] for precision in precisions}

    def fit(precision: str, seed: int) -> None:
        model = DSDCCA(
            N_COMPONENTS,
            WIDTHS,
            scale_hidden=(64,),
            epochs=20,
            warmup=5,
            precision=precision,
            random_state=seed,
            verbose=0,
            device="cpu",
        )
        model.fit(data.X_train, data.y_train, X_val=data.X_val, y_val=data.y_val)
        scores[precision].append(model.score(data.X_test, data.y_test))

    calls = iter(range(10**6))
    seconds = interleaved(
        {p: (lambda p=p: fit(p, seeds[next(calls) // 2 % len(seeds)])) for p in precisions},
        repeats=len(seeds),
    )
    rows = [
        (p, f"{seconds[p]:.2f}", f"{seconds['fp32'] / seconds[p]:.2f}", f"{mean(scores[p]):.3f}")
        for p in precisions
    ]
    title = "DS-DCCA, 8,000 digits, nets 400-400-20, scaling 64, 20 epochs, 3 seeds"
    show("bf16", title, rows, ("precision", "seconds", "speed", "held-out TC"))


if __name__ == "__main__":
    main()
