"""Colours that most people with colour-vision deficiency can tell apart."""

COMMUNITY_COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#B8A400",
    "#7A7F87",
)
"""Okabe and Ito's palette; its black gives way to grey and its yellow is deepened, so that
both stand on light and dark paper alike."""

CLASS_COLOURS = (
    "#4477AA",
    "#CC6677",
    "#44AA99",
    "#DDB94F",
    "#AA4499",
    "#117733",
    "#88CCEE",
    "#999933",
    "#9C3B5F",
    "#7B6FD0",
)
"""Paul Tol's muted palette, its darkest hues lightened for dark paper."""

UNKNOWN = "#9AA3AD"
INK = "#1F2A37"
MUTED = "#8A94A1"
ACCENT = "#0B7A75"
WARNING = "#C2410C"


def community_colours(count: int) -> list[str]:
    """One colour per community."""
    return _extend(COMMUNITY_COLOURS, count)


def class_colours(count: int) -> list[str]:
    """One colour per class, from another family than the communities'."""
    return _extend(CLASS_COLOURS, count)


def _extend(colours: tuple[str, ...], count: int) -> list[str]:
    """Repeat the palette in a lighter and then a darker shade when it runs out."""
    shades = [(0.0, 255), (0.45, 255), (0.4, 0)]
    extended = []
    for index in range(count):
        amount, towards = shades[index // len(colours) % len(shades)]
        extended.append(_mix(colours[index % len(colours)], towards, amount))
    return extended


def _mix(colour: str, towards: int, amount: float) -> str:
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    mixed = (round(c + (towards - c) * amount) for c in channels)
    return "#" + "".join(f"{c:02X}" for c in mixed)
