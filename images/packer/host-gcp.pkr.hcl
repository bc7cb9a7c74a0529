# A host image on Google Cloud: Debian 12 with what the bootstrap installs. README.md says how.

variable "project" {
  type = string
}

variable "zone" {
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

variable "subnetwork" {
  type        = string
  default     = ""
  description = "A subnetwork whose firewall lets you in by SSH; empty for the network `default`."
}

variable "machine_type" {
  type        = string
  default     = "n2-standard-2"
  description = "To build on; it needs no KVM."
}

variable "labels" {
  type        = map(string)
  default     = {}
  description = "More labels, on everything that is made."
}

locals {
  folder    = "${abspath(path.root)}/../../infra/bootstrap"
  bootstrap = [for name in sort(fileset(local.folder, "*")) : "${local.folder}/${name}"]
  # What is in the image, but for Debian: the same digest, the same image. README.md has the recipe.
  digest = substr(sha256(join("\n", concat(
    [for path in local.bootstrap : file(path)],
    [file("${abspath(path.root)}/host-bake.sh"), var.agent_sha256],
  ))), 0, 40)
  name   = "osgym-host-${local.digest}"
  labels = merge(var.labels, { osgym-digest = local.digest })
}

source "googlecompute" "host" {
  project_id   = var.project
  zone         = var.zone
  machine_type = var.machine_type
  subnetwork   = var.subnetwork

  source_image_family     = "debian-12"
  source_image_project_id = ["debian-cloud"]
  disk_size               = 16
  disk_type               = "pd-balanced" # encrypted, as every disk there

  # A second build of the same content ends here, before anything is started: the name is taken.
  # Images belong to the project; nobody else is let in.
  image_name        = local.name
  image_family      = "osgym-host"
  image_description = "OSGym host"
  image_labels      = local.labels
  labels            = local.labels

  # No service account: the instance's metadata service hands out no credentials.
  disable_default_service_account = true
  metadata                        = { block-project-ssh-keys = "TRUE" }
  ssh_username                    = "packer"
  temporary_key_pair_type         = "ed25519"
  ssh_clear_authorized_keys       = true
}

build {
  sources = ["source.googlecompute.host"]

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
