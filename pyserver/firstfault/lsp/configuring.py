"""The client's side of the conversation at the start, and its settings whenever they change."""

import logging
from typing import Any

from lsprotocol import types

from firstfault.lsp import linting, settings
from firstfault.lsp.parent import watch
from firstfault.lsp.protocol import SECTION
from firstfault.lsp.settings import Settings
from firstfault.lsp.wire import Server

logger = logging.getLogger(__name__)


def initialize(ls: Server, params: types.InitializeParams) -> None:
    ls.settings = ls.initial_settings = settings.parse(params.initialization_options)
    options = params.initialization_options
    ls.proves_fixes = isinstance(options, dict) and options.get("proveFix") is True
    text_document = params.capabilities.text_document
    ls.pulls = text_document is not None and text_document.diagnostic is not None
    ls.documents.encoding = str(ls.workspace.position_encoding)
    if params.process_id is not None:
        watch(params.process_id, ls.end_runs)


async def initialized(ls: Server, _: types.InitializedParams) -> None:
    linting.warm_up()
    workspace = ls.client_capabilities.workspace
    settings_watched = workspace.did_change_configuration if workspace else None
    if settings_watched is not None and settings_watched.dynamic_registration:
        section = types.DidChangeConfigurationRegistrationOptions(section=SECTION)
        await _register(ls, types.WORKSPACE_DID_CHANGE_CONFIGURATION, section)
    files_watched = workspace.did_change_watched_files if workspace else None
    if files_watched is not None and files_watched.dynamic_registration:
        scripts = types.DidChangeWatchedFilesRegistrationOptions(
            [types.FileSystemWatcher("**/*.py"), types.FileSystemWatcher("**/pyproject.toml")]
        )
        await _register(ls, types.WORKSPACE_DID_CHANGE_WATCHED_FILES, scripts)
    await _ask(ls)


async def changed(ls: Server, params: types.DidChangeConfigurationParams) -> None:
    """The client asks to be asked; one that cannot be asked sends its settings along."""
    if not await _ask(ls):
        _apply(ls, settings.parse(params.settings, ls.initial_settings))


def files_changed(ls: Server, params: types.DidChangeWatchedFilesParams) -> None:
    """A rule may have looked into a file that is not open: what it found may have changed with it."""
    if all(ls.documents.get(each.uri) for each in params.changes):
        return
    ls.files_changed += 1
    linting.refresh(ls)


async def _register(ls: Server, method: str, options: object) -> None:
    registration = types.Registration(id=f"firstfault {method}", method=method, register_options=options)
    try:
        await ls.client_register_capability_async(types.RegistrationParams([registration]))
    except Exception as error:
        logger.warning("The client will not send %s: %s", method, error)


async def _ask(ls: Server) -> bool:
    """Fetch the section ``firstfault``; False where the client cannot be asked or has no answer."""
    workspace = ls.client_capabilities.workspace
    if workspace is None or not workspace.configuration:
        return False
    items = [types.ConfigurationItem(section=SECTION)]
    try:
        answer: Any = await ls.workspace_configuration_async(types.ConfigurationParams(items))
    except Exception as error:
        logger.warning("The client did not tell its settings: %s", error)
        return False
    section = answer[0] if isinstance(answer, list | tuple) and answer else None
    if section is None:
        return False
    _apply(ls, settings.parse(section, ls.initial_settings))
    return True


def _apply(ls: Server, new: Settings) -> None:
    if new == ls.settings:
        return
    ls.settings = new
    linting.refresh(ls)
