"""Image and agent in a bucket at Google Cloud, which encrypts everything it keeps."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_gcp as gcp

from osgym_infra.components import golden


class GoldenImage(golden.GoldenImage):
    """Archives in a private bucket of the stack, or in the configured one."""

    def _prepare(self) -> None:
        self._place: pulumi.Input[str] = self._config.bucket
        if self._config.bucket:
            return
        made = gcp.storage.Bucket(
            f"{self._name}-archives",
            location=self._config.region,
            project=self._config.own["project"],
            public_access_prevention="enforced",
            uniform_bucket_level_access=True,
            # What is in it can be made again: nothing deleted is kept, and paid for, for a week.
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
            force_destroy=True,
            labels=self._args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._place, self.bucket = made.id, made.id

    def _text(self, key: str, content: str) -> pulumi.Output[str]:
        return self._stored("bootstrap", self, name=key, content=content, content_type="application/json")

    def _uri(self, part: str, archive: golden.Archive) -> pulumi.Output[str]:
        source = archive.archive.apply(pulumi.FileAsset)
        return self._stored(part, archive, name=self._key(archive), source=source)

    def _stored(self, part: str, parent: pulumi.Resource, **given: Any) -> pulumi.Output[str]:
        opts = pulumi.ResourceOptions(parent=parent)
        stored = gcp.storage.BucketObject(f"{self._name}-{part}", bucket=self._place, **given, opts=opts)
        return pulumi.Output.concat("gs://", stored.bucket, "/", stored.name)
