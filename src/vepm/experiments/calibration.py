"""How far the confidence of predictions is from their accuracy."""

from dataclasses import replace

import torch

from vepm.baselines import GCN
from vepm.baselines.fitting import Classifier, NodeProblem
from vepm.experiments.setting import Finding, Setting, finetune
from vepm.protocols import RunResult
from vepm.training import probabilities
from vepm.training.calibration import calibrate
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
    """GCN's on the test nodes, at the epoch that validation chooses."""
    device = "cuda" if setting.device != "cpu" and torch.cuda.is_available() else "cpu"
    gcn = GCN(device=device)
    if setting.quick:
        gcn = replace(gcn, epochs=QUICK_EPOCHS)
    problem = NodeProblem(setting.dataset, setting.split, gcn.row_normalize, device)
    test = problem.held_out()["test"][0]
    errors: list[float] = []

    def measure(model: Classifier) -> None:
        with torch.no_grad():
            found = torch.softmax(model(test.graph)[test.rows], dim=1)
        errors.append(calibration_error(found, test.labels))

    with torch.random.fork_rng():
        torch.manual_seed(setting.seed)
        curve = gcn.curve(setting.dataset, setting.split, setting.seed, measure)
    named = ("gcn", setting.dataset.name, setting.split.name, setting.seed)
    result = RunResult.from_curve(*named, curve, settings=gcn.settings())
    return Finding({"calibration_error": errors[result.best_epoch]}, result=result)
