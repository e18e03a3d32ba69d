"""A model as a recipe wants it: where it comes from, which files the engine needs, what must be true of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from recipectl.recipe.base import Evidence, Sha256, Sha256Prefix, Strict

# What vLLM reads from a folder of safetensors. Recipes add or replace.
DEFAULT_ALLOW = ["*.safetensors", "*.json", "tokenizer*", "*.model", "*.txt", "*.jinja", "*.md", "LICENSE*", "NOTICE*"]


class ModelFiles(Strict):
    """Which files are fetched, which must be there, and what others have published about them."""

    allow: list[str] = Field(default=DEFAULT_ALLOW, description="glob patterns of files that the engine needs")
    required: list[str] = Field(default=[], description="exact names that must be in the lock (rule K009)")
    sha256: dict[str, Sha256Prefix] = Field(default={}, description="published hashes or prefixes, by file name")
    roles: dict[str, str] = Field(
        default={}, description="files in an unchecked format (bin, pkl, GGUF): exact name -> what it is for"
    )


class Expect(Strict):
    """Facts that must hold in the model's own config.json and safetensors headers. Unset means not stated."""

    architecture: str | None = None
    block_size: int | None = Field(default=None, ge=1)
    layers: int | None = Field(default=None, ge=1)
    hidden_size: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    kv_heads: int | None = Field(default=None, ge=1)
    head_dim: int | None = Field(default=None, ge=1)
    taps: list[int] | None = Field(default=None, description="target layers the drafter reads, as in its config.json")
    attention: Literal["full", "sliding"] | None = None
    sliding_window: int | None = None
    mask_token_id: int | None = None
    max_positions: int | None = None
    dtype: str | None = None
    kv: dict[str, int] = Field(
        default={}, description="what KV geometry needs (see geometry_model), so that it can be shown before the lock"
    )
    tensors: dict[str, int] = Field(default={}, description="tensor counts: a substring of the name -> how many")


class RemoteCode(Strict):
    """Python files of the model repository that the recipe lets run, each by its sha256."""

    reviewed_by: str
    files: dict[str, Sha256] = Field(min_length=1)


class Model(Strict):
    """One model: from the hub (`repo` and `revision`) or from a folder beside the recipe (`path`)."""

    role: Literal["target", "drafter"]
    repo: str | None = Field(default=None, pattern=r"^[\w.\-]+/[\w.\-]+$")
    path: str | None = Field(default=None, description="folder beside recipe.yaml")
    revision: str | None = Field(
        default=None, description="40-hex commit; anything else is a moving ref and warned about"
    )
    license: str | None = Field(default=None, description="SPDX expression as published; null where none is stated")
    license_evidence: list[Evidence] = []
    gated: bool | None = None
    format: str = "safetensors"
    quantization: str | None = Field(default=None, description="NVFP4, W4A16, MXFP8, BF16, ... as published")
    kernels: list[Literal["b12x"]] = Field(default=[], description="kernel stacks this checkpoint needs (rule K012)")
    random_weights: bool = Field(default=False, description="acceptance means nothing; gates that need it are skipped")
    mtp: bool | None = Field(default=None, description="carries usable multi-token-prediction layers; null: not stated")
    files: ModelFiles = ModelFiles()
    expect: Expect = Expect()
    remote_code: RemoteCode | None = None
    evidence: list[Evidence] = []
    notes: list[str] = []

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        if (self.repo is None) == (self.path is None):
            raise ValueError("give exactly one of repo (a hub repository) or path (a folder beside the recipe)")
        if self.path is not None and self.revision is not None:
            raise ValueError("revision belongs to a hub repository; a local folder is pinned by the lock alone")
        return self


class Given(Model):
    """A model that the command line named. Its `path` is absolute, which no recipe file can spell."""
