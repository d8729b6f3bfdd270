"""Programs that send a request to a model at its own path, with curl, in Python and in JavaScript, ready to run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from hami_serve.datatypes import DATATYPES
from hami_serve.model import Model, TensorSpec

SHOWN = 64  # elements of a tensor that a program lists; of more, it makes zeros
PICTURE = "picture.jpg"
DATA = '"data": "hello"'  # of a model that declares no inputs
READ_FILE = 'const { readFile } = await import("node:fs/promises");'
PYTHON = """\
{imports}

request = urllib.request.Request(
    "{url}",
    data={body},
    headers={{{headers}}},
)
with urllib.request.urlopen(request) as answer:
    print(json.load(answer))
"""
JAVASCRIPT = """\
const answer = await fetch("{url}", {{
  method: "POST",
  headers: {{ {headers} }},
  body: {body},
}});
console.log(await answer.json());
"""


def form_of(spec: TensorSpec) -> str:
    """Return what a person gives for an input: "picture", "text" or "numbers"."""
    if spec.datatype not in ("", "BYTES"):
        return "numbers"
    return "picture" if spec.datatype and not spec.is_text else "text"


def takes_picture(model: Model) -> bool:
    """Return whether a model without declared inputs takes the bytes of a file."""
    return not model.inputs and model.data_type == "bytes"


def count_of(spec: TensorSpec) -> int:
    """Return the number of elements of the smallest tensor that fits."""
    return math.prod(max(size, 1) for size in spec.shape)


def sample_of(spec: TensorSpec) -> Any:
    """Return an example as JSON; None if it is too long to be shown."""
    if form_of(spec) != "numbers":
        return "hello"
    if count_of(spec) > SHOWN:
        return None
    sample: Any = {"b": False, "f": 0.0}.get(DATATYPES[spec.datatype][0].kind, 0)
    for size in reversed(spec.shape):
        sample = [sample] * max(size, 1)
    return sample


def snippets(model: Model, url: str, *, token: bool) -> dict[str, str]:
    """Return the programs by language.

    Args:
        model: The model.
        url: The address of its path.
        token: Whether the server needs one; the programs take it from the variable TOKEN of the environment.
    """
    inputs = model.inputs
    if takes_picture(model) or (len(inputs) == 1 and form_of(inputs[0]) == "picture"):
        return _of_file(url, token)
    return {
        "curl": _curl(inputs, url, token),
        "Python": _python(inputs, url, token),
        "JavaScript": _javascript(inputs, url, token),
    }


def _of_file(url: str, token: bool) -> dict[str, str]:
    kind = "image/jpeg"
    before = f"{READ_FILE} // in a page: the File of an <input>\n"
    return {
        "curl": f"curl {url} -H 'Content-Type: {kind}' --data-binary @{PICTURE}{_curl_token(token)}",
        "Python": _in_python(url, f'open("{PICTURE}", "rb").read()', kind, token),
        "JavaScript": before + _in_javascript(url, f'await readFile("{PICTURE}")', kind, token),
    }


def _curl_token(token: bool) -> str:
    return ' -H "Authorization: Bearer $TOKEN"' if token else ""


def _in_python(url: str, body: str, kind: str, token: bool, imports: tuple[str, ...] = ()) -> str:
    names = sorted({"json", "urllib.request", *imports, *(("os",) if token else ())})
    headers = f'"Content-Type": "{kind}"' + (', "Authorization": "Bearer " + os.environ["TOKEN"]' if token else "")
    return PYTHON.format(imports="\n".join(f"import {name}" for name in names), url=url, body=body, headers=headers)


def _in_javascript(url: str, body: str, kind: str, token: bool) -> str:
    headers = f'"Content-Type": "{kind}"' + (", Authorization: `Bearer ${process.env.TOKEN}`" if token else "")
    return JAVASCRIPT.format(url=url, body=body, headers=headers)


def _curl(inputs: Sequence[TensorSpec], url: str, token: bool) -> str:
    tail = _curl_token(token)
    if all(form_of(spec) != "picture" and sample_of(spec) is not None for spec in inputs):
        body = json.dumps({spec.name: sample_of(spec) for spec in inputs} or {"data": "hello"})
        return f"curl {url} -H 'Content-Type: application/json' -d {_quoted(body)}{tail}"
    files, parts = [], []
    for index, spec in enumerate(inputs):
        if form_of(spec) == "picture":
            parts.append(f"-F {_quoted(f'{spec.name}=@{PICTURE}')}")
        elif sample_of(spec) is None:
            size = count_of(spec) * DATATYPES[spec.datatype][1]
            files.append(f"head -c {size} /dev/zero > input{index}.bin")
            parts.append(f"-F {_quoted(f'{spec.name}=@input{index}.bin;type=application/octet-stream')}")
        else:
            parts.append(f"-F {_quoted(f'{spec.name}={json.dumps(sample_of(spec))}')}")
    return "\n".join([*files, f"curl {url} {' '.join(parts)}{tail}"])


def _quoted(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"


def _python(inputs: Sequence[TensorSpec], url: str, token: bool) -> str:
    imports: tuple[str, ...] = ()
    fields = []
    for spec in inputs:
        sample = sample_of(spec)
        value = repr(sample) if sample is not None else f"[0] * {count_of(spec)}"
        if form_of(spec) == "picture":
            imports = ("base64",)
            value = f'{{"base64": base64.b64encode(open("{PICTURE}", "rb").read()).decode()}}'
        fields.append(f"{spec.name!r}: {value}")
    body = f"json.dumps({{{', '.join(fields) or DATA}}}).encode()"
    return _in_python(url, body, "application/json", token, imports)


def _javascript(inputs: Sequence[TensorSpec], url: str, token: bool) -> str:
    before = ""
    fields = []
    for spec in inputs:
        sample = sample_of(spec)
        value = json.dumps(sample) if sample is not None else f"Array({count_of(spec)}).fill(0)"
        if form_of(spec) == "picture":
            before = f"{READ_FILE}\n"
            value = f'{{ base64: (await readFile("{PICTURE}")).toString("base64") }}'
        fields.append(f"{json.dumps(spec.name)}: {value}")
    body = f"JSON.stringify({{ {', '.join(fields) or DATA} }})"
    return before + _in_javascript(url, body, "application/json", token)
