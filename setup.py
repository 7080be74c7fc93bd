"""README as the package index shows it: its links lead to the site and to the repository.

All else about the package is in setup.cfg.
"""

import configparser
import pathlib
import re

from setuptools import setup

ROOT = pathlib.Path(__file__).parent


def absolute_links(text: str) -> str:
    """Returns a page of the repository with addresses in place of its relative links."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    urls = dict(re.findall(r"(\w+) = (\S+)", config["metadata"]["project_urls"]))

    def absolute(link: re.Match) -> str:
        opening, path = link.groups()
        if path.startswith("docs/"):
            page = re.sub(r"\.md(?=#|$)", ".html", path.removeprefix("docs/"))
            return f"{opening}{urls['Documentation']}{page}"
        return f"{opening}{urls['Source']}/blob/main/{path}"

    return re.sub(r"""(\]\(|\b(?:src|srcset|href)=")(?![a-z]+:|#)([^)"]+)""", absolute, text)


setup(long_description=absolute_links((ROOT / "README.md").read_text(encoding="utf-8")))
