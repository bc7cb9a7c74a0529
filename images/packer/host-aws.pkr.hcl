# A host image on AWS: Debian 12 with what the bootstrap installs. README.md says how.

variable "region" {
  type = string
}

variable "agent" {
  type        = string
  description = "The packed host agent, agent.tar of `osgym fleet pack`."
}

variable "agent_sha256" {
  type        = string
  description = "Its SHA-256, which the bootstrap checks."
  validation {
    condition     = length(var.agent_sha256) == 64
    error_message = "It must be 64 hexadecimal digits."
  }
}

variable "ssh_cidrs" {
  type        = list(string)
  description = "Addresses from which this Packer comes to the building instance, by SSH."
  validation {
    condition     = length(var.ssh_cidrs) > 0 && length([for cidr in var.ssh_cidrs : cidr if contains(["0.0.0.0/0", "::/0"], cidr)]) == 0
    error_message = "Name your own addresses, such as 203.0.113.7/32; the whole world is refused."
  }
}

variable "subnet_id" {
  type        = string
  default     = ""
  description = "A subnet whose instances reach the Internet; empty for one of the default VPC."
}

variable "instance_type" {
  type        = string
  default     = "m7i.large"
  description = "To build on; it needs no KVM."
}

variable "kms_key_id" {
  type        = string
  default     = ""
  description = "A key of your own for the disk; empty for the account's."
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "More tags, on everything that is made."
}

locals {
  folder    = "${abspath(path.root)}/../../infra/bootstrap"
  bootstrap = [for name in sort(fileset(local.folder, "*")) : "${local.folder}/${name}"]
  # What is in the image, but for Debian: the same digest, the same image. README.md has the recipe.
  digest = substr(sha256(join("\n", concat(
    [for path in local.bootstrap : file(path)],
    [file("${abspath(path.root)}/host-bake.sh"), var.agent_sha256],
  ))), 0, 40)
  name = "osgym-host-${local.digest}"
  tags = merge(var.tags, { Name = local.name, osgym-digest = local.digest })
}

source "amazon-ebs" "host" {
  region        = var.region
  instance_type = var.instance_type
  subnet_id     = var.subnet_id

  source_ami_filter {
    filters = {
      name                = "debian-12-amd64-*"
      architecture        = "x86_64"
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = ["136693071363"] # Debian (https://wiki.debian.org/Cloud/AmazonEC2Image)
    most_recent = true
  }

  # A second build of the same content ends here, before anything is started: the name is taken.
  ami_name        = local.name
  ami_description = "OSGym host"
  # Nobody but this account: no ami_users, no ami_groups.

  launch_block_device_mappings {
    device_name           = "/dev/xvda"
    volume_size           = 16
    volume_type           = "gp3"
    iops                  = 3000
    throughput            = 125
    encrypted             = true
    kms_key_id            = var.kms_key_id
    delete_on_termination = true
  }

  # The instance has no role: its metadata service holds no credentials.
  temporary_security_group_source_cidrs = var.ssh_cidrs
  ssh_username                          = "admin"
  temporary_key_pair_type               = "ed25519"
  ssh_clear_authorized_keys             = true
  shutdown_behavior                     = "terminate"

  tags            = local.tags
  snapshot_tags   = local.tags
  run_tags        = local.tags
  run_volume_tags = local.tags
}

build {
  sources = ["source.amazon-ebs.host"]

  provisioner "shell" {
    inline = ["install -d -m 700 /tmp/osgym"]
  }
  provisioner "file" {
    sources     = concat(local.bootstrap, ["${abspath(path.root)}/host-bake.sh"])
    destination = "/tmp/osgym/"
  }
  provisioner "file" {
    source      = var.agent
    destination = "/tmp/osgym/agent.tar"
  }
  provisioner "shell" {
    inline = ["sudo bash /tmp/osgym/host-bake.sh ${var.agent_sha256}", "rm -rf /tmp/osgym"]
  }
}
