"""What the serving room needs to be told."""

from dataclasses import dataclass, field

from nmt_cli.config import check, setting
from nmt_cli.decoding.config import InputConfig, SearchConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """What a server bears, and what it offers."""

    most_waiting: int = setting(2000, least=1, everyday=True)
    """Most sentences that wait or are being translated; a request that would be beyond is answered with 429,
    and told when to come again."""

    most_characters: int = setting(100_000, least=1, everyday=True)
    """Most characters of one request; more are answered with 413."""

    most_texts: int = setting(1000, least=1)
    """Most texts of one request; more are answered with 413."""

    most_seconds: float = setting(60.0, above=0, everyday=True)
    """Most time for one request; where it takes longer, it is dropped and answered with 504."""

    most_alternatives: int = setting(5, least=0, most=100)
    """Most further translations that one may ask for."""

    pivot: str = "en"
    """The language through which a pair goes that no model translates by itself; empty for none."""

    share_port: bool = setting(False)
    """Let other processes listen on the same port; the system then deals connections out to all of them."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeConfig:
    """Everything that decides what `nmt serve` answers."""

    search: SearchConfig = field(default_factory=SearchConfig)
    input: InputConfig = field(default_factory=InputConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
