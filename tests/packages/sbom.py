"""The list of what the program is made of is valid CycloneDX, and each part has a licence and an address.

    sbom.py FILE
"""
import json, pathlib, sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = pathlib.Path(sys.argv[1]).read_text()
bom = json.loads(text)
error = JsonStrictValidator(SchemaVersion.from_version(bom["specVersion"])).validate_str(text)
assert error is None, error
assert len(bom["components"]) > 100, "parts are missing"
for part in bom["components"]:
    assert part.get("licenses") and part.get("purl"), f"{part['name']} has no licence or address"
