"""Image and agent in a bucket at AWS."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws

from osgym_infra.components import golden


class GoldenImage(golden.GoldenImage):
    """Archives in a private bucket of the stack, or in the configured one."""

    def _prepare(self) -> None:
        self._needs: list[pulumi.Resource] = []
        self._place: pulumi.Input[str] = self._config.bucket
        if self._config.bucket:
            return
        made = aws.s3.Bucket(
            f"{self._name}-archives",
            # What is in it can be made again.
            force_destroy=True,
            tags=self._args.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        closed = aws.s3.BucketPublicAccessBlock(
            f"{self._name}-archives",
            bucket=made.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=pulumi.ResourceOptions(parent=made),
        )
        self._needs, self._place, self.bucket = [closed], made.id, made.id

    def _text(self, key: str, content: str) -> pulumi.Output[str]:
        return self._stored("bootstrap", self, key=key, content=content, content_type="application/json")

    def _uri(self, part: str, archive: golden.Archive) -> pulumi.Output[str]:
        source = archive.archive.apply(pulumi.FileAsset)
        return self._stored(part, archive, key=self._key(archive), source=source)

    def _stored(self, part: str, parent: pulumi.Resource, **given: Any) -> pulumi.Output[str]:
        stored = aws.s3.BucketObjectv2(
            f"{self._name}-{part}",
            bucket=self._place,
            **given,
            server_side_encryption="AES256",
            tags=self._args.tags,
            opts=pulumi.ResourceOptions(parent=parent, depends_on=self._needs),
        )
        return pulumi.Output.concat("s3://", stored.bucket, "/", stored.key)
