"""The settings of `nmt serve`."""

from dataclasses import dataclass, field

from nmt_cli.config import Section, setting
from nmt_cli.decoding.config import InputConfig, SearchConfig
from nmt_cli.errors import UserError
from nmt_cli.setting_values import Bounds

MAX_TEXTS = 1000
"""Maximum number of texts in one request."""

MAX_CHARACTERS = 100_000
"""Maximum number of characters in one request. A proxy may refuse smaller ones already, by their bytes."""

MAX_ALTERNATIVES = 5
"""Maximum number of further translations that a request may ask for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig(Section):
    """The limits of the server, the pivot language, and what processes share."""

    section = "server"

    most_waiting: int = setting(2000, Bounds(least=1), everyday=True)
    """Maximum number of unfinished sentences. The server answers a request beyond it with status 429 and a
    `Retry-After` header."""

    most_seconds: float = setting(60.0, Bounds(above=0), everyday=True)
    """Maximum time per request, in seconds. The server drops a slower request and answers with status 504."""

    memory: float = setting(0.0, Bounds(least=0), everyday=True)
    """Memory of the server, in GB. A model loads at its first request. Beyond the limit, idle models are
    unloaded. 0 keeps all models loaded. The memory of GPUs does not count."""

    pivot: str = "en"
    """Pivot language for pairs that no model translates. Empty means no pivot."""

    share_port: bool = False
    """Let other processes listen on the same port. The system then distributes connections over them. Set
    `server.folder` as well."""

    folder: str = ""
    """Folder for glossaries and translated files. Processes on the same port share it. Empty means a
    temporary folder, which is removed at the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeConfig:
    """All settings of `nmt serve`."""

    search: SearchConfig = field(default_factory=SearchConfig)
    input: InputConfig = field(default_factory=InputConfig)
    server: ServerConfig = field(default_factory=ServerConfig)

    def __post_init__(self) -> None:
        """Raise `UserError` for a metric of `search.mbr` that the server has no model for."""
        if self.search.mbr.startswith("comet"):
            raise UserError(f"search.mbr={self.search.mbr} works only in nmt translate. Use chrf.")
