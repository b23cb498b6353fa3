"""What `kubectl apply -k` makes of a directory, as far as contrib/kubernetes needs it, for a validator.

    kustomize.py DIRECTORY OUTPUT      writes a file for each manifest

Resources and patches of a kustomization are merged as Kubernetes does it: objects by their members, lists
of named things by name, other lists whole. A file that is missing, or that nobody names, is an error.
"""
import pathlib, sys

import yaml


def load(path):
    return yaml.safe_load(path.read_text())


def merged(old, new):
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}
    if is_named(old) and is_named(new):
        names = {item["name"]: item for item in old}
        for item in new:
            names[item["name"]] = merged(names.get(item["name"]), item)
        return list(names.values())
    return new


def is_named(value):
    return (isinstance(value, list) and bool(value)
            and all(isinstance(item, dict) and "name" in item for item in value))


def identity(manifest):
    return manifest["kind"], manifest["metadata"]["name"]


def rendered(directory):
    """The manifests of a kustomization, by kind and name."""
    file = directory / "kustomization.yaml"
    kustomization = load(file)
    manifests, named = {}, {file.name}
    for resource in kustomization.get("resources", []):
        path = directory / resource
        if path.is_dir():
            manifests.update(rendered(path.resolve()))
        else:
            named.add(resource)
            manifest = load(path)
            assert identity(manifest) not in manifests, "%s stands twice" % resource
            manifests[identity(manifest)] = manifest
    for generator in kustomization.get("configMapGenerator", []):
        key = "ConfigMap", generator["name"]
        assert (key in manifests) == (generator.get("behavior") == "replace"), key
        data = {name: (directory / name).read_text() for name in generator["files"]}
        named.update(generator["files"])
        manifests[key] = {"apiVersion": "v1", "kind": "ConfigMap",
                          "metadata": {"name": generator["name"]}, "data": data}
    for patch in kustomization.get("patches", []):
        named.add(patch["path"])
        manifest = load(directory / patch["path"])
        assert identity(manifest) in manifests, "%s patches nothing" % patch["path"]
        manifests[identity(manifest)] = merged(manifests[identity(manifest)], manifest)
    left = {path.name for path in directory.iterdir() if path.is_file()} - named
    assert not left, "%s names no %s" % (file, ", ".join(sorted(left)))
    return manifests


def main(directory, output):
    manifests = rendered(pathlib.Path(directory).resolve())
    # What runs names what is there.
    pod = manifests["StatefulSet", "mcpvisor"]["spec"]["template"]["spec"]
    assert ("ServiceAccount", pod["serviceAccountName"]) in manifests
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in manifests
    for (kind, name), manifest in manifests.items():
        path = pathlib.Path(output, "%s-%s.yaml" % (kind.lower(), name))
        path.write_text(yaml.safe_dump(manifest))


if __name__ == "__main__":
    main(*sys.argv[1:])
