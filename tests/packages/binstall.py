"""The archive that `cargo binstall` fetches for a platform, by Cargo.toml, is one that was built.

    binstall.py PLATFORM PACKAGES      PACKAGES is the directory of contrib/package.sh
"""
import pathlib, sys, tarfile, tomllib


def expected(package, platform):
    said = package["metadata"]["binstall"]
    said = {**said, **said["overrides"].get(platform, {})}
    values = {"repo": "", "name": package["name"], "bin": package["name"], "version": package["version"],
              "target": platform, "binary-ext": ""}
    return [expanded(said[key], values) for key in ("pkg-url", "bin-dir")]


def expanded(template, values):
    for key, value in values.items():
        template = template.replace("{ %s }" % key, value)
    assert "{" not in template, f"{template}: unknown to binstall.py"
    return template


platform, packages = sys.argv[1:]
package = tomllib.loads(pathlib.Path("Cargo.toml").read_text())["package"]
url, program = expected(package, platform)
with tarfile.open(pathlib.Path(packages, url.rsplit("/", 1)[1])) as archive:
    assert archive.getmember(program).mode & 0o111, f"{program} cannot be run"
# Platforms that are not built here have the same names, but for the processor.
processor = platform.split("-")[0]
for other in package["metadata"]["binstall"]["overrides"]:
    there = other.split("-")[0]
    names = [part.replace(there, processor) for part in expected(package, other)]
    assert names == expected(package, other.replace(there, processor)), f"{other}: {names}"
