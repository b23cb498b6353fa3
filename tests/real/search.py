"""Requests in everyday words over the tools of ten public servers: the right tool has to be among the
first five that `find_tools` shows."""

import json
import re
import urllib.request

import servers as public
from support import Failed, Gateway, Table, until

# Of 60 requests.
FOUND_MIN = 54
SHOWN = 5

NAMES = [
    "filesystem", "memory", "sequential-thinking", "every-stdio", "git", "time", "sqlite", "fetch", "playwright",
]

# What a person says, and the tools that do it.
REQUESTS = [
    ("what's in this text file", "filesystem__read_text_file filesystem__read_file"),
    ("open two documents at once", "filesystem__read_multiple_files"),
    ("show me the picture on disk", "filesystem__read_media_file"),
    ("save this text to a file", "filesystem__write_file"),
    ("replace a line in a file", "filesystem__edit_file"),
    ("make a new folder", "filesystem__create_directory"),
    ("which files are in this folder", "filesystem__list_directory filesystem__list_directory_with_sizes"),
    ("how big are the files here", "filesystem__list_directory_with_sizes filesystem__get_file_info"),
    ("show the whole folder structure", "filesystem__directory_tree"),
    ("rename a file", "filesystem__move_file"),
    ("find files whose name matches a pattern", "filesystem__search_files"),
    ("when was this file last changed", "filesystem__get_file_info"),
    ("which folders may you use", "filesystem__list_allowed_directories"),
    ("remember a new person", "memory__create_entities"),
    ("remember that these two people are related", "memory__create_relations"),
    ("note something about a person we know", "memory__add_observations"),
    ("forget this person", "memory__delete_entities"),
    ("these two are no longer related", "memory__delete_relations"),
    ("show everything you remember", "memory__read_graph"),
    ("search the knowledge graph", "memory__search_nodes"),
    ("think step by step about a hard problem", "sequential-thinking__sequentialthinking"),
    ("repeat what I say", "every-stdio__echo"),
    ("what is two plus three", "every-stdio__get-sum"),
    ("show the environment variables", "every-stdio__get-env"),
    ("what has changed in my working copy", "git__git_status git__git_diff_unstaged git__git_diff"),
    ("show what is staged", "git__git_diff_staged git__git_status"),
    ("commit my work", "git__git_commit"),
    ("stage these files", "git__git_add"),
    ("unstage everything", "git__git_reset"),
    ("show the last commits", "git__git_log"),
    ("make a new branch", "git__git_create_branch github__create_branch"),
    ("switch to another branch", "git__git_checkout"),
    ("list the branches", "git__git_branch"),
    ("what time is it in Tokyo", "time__get_current_time"),
    ("convert three o'clock in Berlin to New York time", "time__convert_time"),
    ("run a select on the database", "sqlite__read_query"),
    ("insert a row into the database", "sqlite__write_query"),
    ("make a new table", "sqlite__create_table"),
    ("which tables are there", "sqlite__list_tables"),
    ("which columns does this table have", "sqlite__describe_table"),
    ("download a web page and read it", "fetch__fetch"),
    ("open a website in the browser", "playwright__browser_navigate"),
    ("press the button on the page", "playwright__browser_click"),
    ("type my name into the field", "playwright__browser_type playwright__browser_fill_form"),
    ("take a picture of the page", "playwright__browser_take_screenshot"),
    ("go back to the page before", "playwright__browser_navigate_back"),
    ("upload a file on the web page", "playwright__browser_file_upload"),
    ("choose something from the dropdown", "playwright__browser_select_option"),
    ("close the browser", "playwright__browser_close"),
    ("report a bug on GitHub", "github__create_issue"),
    ("comment on an issue", "github__add_issue_comment"),
    ("which issues are open", "github__list_issues github__search_issues"),
    ("open a pull request", "github__create_pull_request"),
    ("merge the pull request", "github__merge_pull_request"),
    ("which files does the pull request change", "github__get_pull_request_files"),
    ("find repositories about rust", "github__search_repositories"),
    ("copy this repository to my account", "github__fork_repository"),
    ("search code on GitHub", "github__search_code"),
    ("put a file into the repository on GitHub", "github__create_or_update_file github__push_files"),
    ("make a new repository", "github__create_repository"),
]


class Caller:
    """One session; asks for tools."""

    def __init__(self, url):
        self.url, self.session = url, None
        client = {"name": "search", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})

    def ask(self, method, params):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        request = urllib.request.Request(self.url, body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.session = answer.headers.get("Mcp-Session-Id") or self.session
            text = answer.read().decode()
        data = re.findall(r"^data: (.+)$", text, re.M)
        return json.loads(data[-1] if data else text)["result"]

    def found(self, query):
        arguments = {"query": query, "limit": SHOWN}
        result = self.ask("tools/call", {"name": "find_tools", "arguments": arguments})
        return re.findall(r"^([\w-]+)\(", result["content"][0]["text"], re.M)


def test(place, directory):
    table = Table(["search"], {}, {})
    table.run("search", "search", lambda: search(place, directory / "search"))
    return table


def search(place, directory):
    directory.mkdir()
    chosen = [server for server in public.servers(place, directory, "") if server.name in NAMES]
    program, *arguments = place.npm("mcp-server-github")
    github = f"[servers.github]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
    config = "".join(server.config() for server in chosen) + github
    gateway = Gateway(place, config, head='expose = "search"\n')
    try:
        gateway.all_up([*NAMES, "github"])
        caller = Caller(gateway.url)
        until("all tools are known", lambda: "github__create_issue" in caller.found("create issue github"))
        missed = []
        for query, wanted in REQUESTS:
            found = caller.found(query)
            if not set(found) & set(wanted.split()):
                missed.append(f"{query!r} finds {', '.join(found) or 'nothing'}")
        print(f"{len(REQUESTS) - len(missed)} of {len(REQUESTS)} requests find their tool", flush=True)
        for miss in missed:
            print(f"  {miss}", flush=True)
        if len(REQUESTS) - len(missed) < FOUND_MIN:
            raise Failed(f"only {len(REQUESTS) - len(missed)} requests find their tool")
    finally:
        gateway.close()
