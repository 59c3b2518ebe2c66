"""What the controller and its broker tell each other: plain records that cross the wire."""

from __future__ import annotations

from attrs import field, frozen


@frozen
class Machine:
    """A node of the cluster that is alive, and all that it has by Ray's names."""

    node: str
    address: str
    total: dict[str, float]


@frozen
class Membership:
    """This machine's address in the cluster; or what is wrong, in words."""

    address: str = ""
    problem: str = ""


@frozen
class Group:
    """A placement group: its state, how its scheduling goes, and each bundle's node; empty where it has none."""

    state: str
    scheduling: str
    nodes: list[str]


@frozen
class Home:
    """A keeper on a machine; or why there is none, in words."""

    keeper: int = -1
    node: str = ""
    address: str = ""
    problem: str = ""


@frozen
class Order:
    """The process that a keeper starts on `machine`: its arguments, variables and log.

    `python` is its interpreter; empty: the keeper's own.
    """

    machine: str
    python: str
    arguments: list[str]
    variables: dict[str, str] = field(repr=False)
    log: str


@frozen
class Ending:
    """How a worker ended, and the last lines of its log where somebody is left to read them."""

    reason: str
    tail: str = ""
