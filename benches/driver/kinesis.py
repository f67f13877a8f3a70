"""Has the contenders on batches of Kinesis: the library's layer, Powertools (Python), and the SDK by hand."""

from driver import lane

NAMES = {
    "powertools-python-kinesis": "Powertools Python (BatchProcessor)",
    "raw-groups": "raw Rust SDK, PartiQL groups (the floor)",
    "layer-kinesis": "this library, the whole Kinesis layer",
}
# The default size of a batch of a stream.
LANE = lane.Lane("Kinesis", NAMES, "layer-kinesis", "powertools-python-kinesis", 100, mark="k-")


def gate(sides):
    return lane.cheaper_than_python(LANE, sides, "Kinesis, new: CPU, Powertools Python / layer", "cpu", 30)
