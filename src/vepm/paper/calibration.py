"""How far the confidence of predictions is from their accuracy."""

from dataclasses import replace

import torch
from torch import Tensor

from vepm.baselines import GCN
from vepm.baselines.fitting import Classifier, NodeProblem
from vepm.evaluation import RunResult
from vepm.paper.setting import Finding, Setting, finetune
from vepm.training import probabilities
from vepm.training.calibration import best_sharpness, calibrate
from vepm.training.metrics import calibration_error

SAMPLES = 16
QUICK_EPOCHS = 2


def calibration(setting: Setting) -> Finding:
    """VEPM's, by the posterior mean and by draws from the posterior, on the test nodes.

    Each is fitted to the validation labels as it would be were it the one asked for in training.
    """
    fitted, result = finetune(setting)
    test, y = setting.split.test, setting.graph.y[setting.split.test]
    numbers = {}
    for name, draws in (("calibration_error", 0), ("sampled_calibration_error", SAMPLES)):
        calibrate(fitted.model, fitted.source, setting.split.val, draws, setting.seed)
        found = probabilities(fitted.model, fitted.source, draws, setting.seed).cpu()
        numbers[name] = calibration_error(found[test], y)
    return Finding(numbers, result=result)


def gcn_calibration(setting: Setting) -> Finding:
    """GCN's on the test nodes at the epoch that validation chooses: as trained, and fitted too."""
    device = "cuda" if setting.device != "cpu" and torch.cuda.is_available() else "cpu"
    gcn = GCN(device=device)
    if setting.quick:
        gcn = replace(gcn, epochs=QUICK_EPOCHS)
    problem = NodeProblem(setting.dataset, setting.split, gcn.row_normalize, device)
    (val,), (test,) = problem.held_out().values()
    scores: list[tuple[Tensor, Tensor]] = []

    def keep_scores(model: Classifier) -> None:
        with torch.no_grad():
            found = model(test.graph)
        scores.append((found[val.rows], found[test.rows]))

    with torch.random.fork_rng():
        torch.manual_seed(setting.seed)
        curve = gcn.curve(setting.dataset, setting.split, setting.seed, keep_scores)
    named = ("gcn", setting.dataset.name, setting.split.name, setting.seed)
    result = RunResult.from_curve(*named, curve, settings=gcn.settings())
    of_val, of_test = scores[result.best_epoch]
    sharpness = best_sharpness(of_val[None], val.labels)
    numbers = {
        name: calibration_error(torch.softmax(factor * of_test, dim=1), test.labels)
        for name, factor in (("calibration_error", 1.0), ("fitted_calibration_error", sharpness))
    }
    return Finding(numbers, result=result)
