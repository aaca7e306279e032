"""Colours of communities and of classes, all of which can be told apart.

Each colour lies as far as possible from those before it, in CIELAB and as people without green
cones see it, so that no class looks like a community.
"""

COMMUNITY_COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A400", "#7A7F87"),
    *("#E1A5B4", "#875A87", "#A569D2", "#FF7869", "#FF96D2", "#F0B44B", "#C35AA5", "#007800"),
    *("#695AC3", "#B45A2D", "#F069C3", "#C3B487", "#3C6987", "#E15A78", "#C33C78", "#0096E1"),
)
"""Okabe and Ito's palette first; its black gives way to grey and its yellow is deepened, so that
both stand on light and dark paper alike."""

CLASS_COLOURS = (
    *("#C31E3C", "#F0B487", "#7887FF", "#78A53C", "#B43CA5", "#3CD2E1", "#965A00", "#96C396"),
    *("#D27869", "#875A4B", "#FF965A", "#78A5FF", "#8796C3", "#0069D2", "#1E785A", "#78875A"),
    *("#FF5A96", "#E1A5FF", "#B4784B", "#B4962D", "#5A69A5", "#9678C3", "#87870F", "#1E87E1"),
)

UNKNOWN = "#9AA3AD"
INK = "#1F2A37"
MUTED = "#8A94A1"
ACCENT = "#0B7A75"
WARNING = "#C2410C"


def community_colours(count: int) -> list[str]:
    """One colour per community; they repeat after twenty-four."""
    return [COMMUNITY_COLOURS[k % len(COMMUNITY_COLOURS)] for k in range(count)]


def class_colours(count: int) -> list[str]:
    """One colour per class, none of which is a community's; they repeat after twenty-four."""
    return [CLASS_COLOURS[c % len(CLASS_COLOURS)] for c in range(count)]
