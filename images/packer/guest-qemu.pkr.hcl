# The golden image with what a team adds to it: a disk of `osgym image build --format disk` is started, files
# and scripts are put in through its guest agent, and it is switched off. README.md says how.

variable "disk" {
  type        = string
  description = "The disk to start from, qcow2 or raw; it stays as it is."
}

variable "checksum" {
  type        = string
  description = "Its checksum: sha256:… of the file."
  validation {
    condition     = length(var.checksum) == 71 && substr(var.checksum, 0, 7) == "sha256:"
    error_message = "It must be sha256: and 64 hexadecimal digits."
  }
}

variable "token_file" {
  type        = string
  description = "A file only you can read, with 16 or more random characters: what the guest agent demands."
}

variable "provision" {
  type        = list(string)
  default     = []
  description = "Programs run inside as root, in this order; with the environment of the bake's own."
}

variable "files" {
  type        = string
  default     = ""
  description = "A folder that is copied over the root file system before, owned by root; empty for none."
}

variable "output" {
  type        = string
  default     = "out/packer"
  description = "The folder that is made; the result is guest.qcow2 in it."
}

variable "accelerator" {
  type    = string
  default = "kvm"
  validation {
    condition     = contains(["kvm", "tcg"], var.accelerator)
    error_message = "It must be kvm, or tcg where there is no KVM."
  }
}

variable "uefi" {
  type        = string
  default     = ""
  description = "UEFI firmware as one file (Debian: /usr/share/ovmf/OVMF.fd); empty starts the disk by BIOS."
}

variable "memory_mib" {
  type    = number
  default = 2048
}

variable "cpus" {
  type    = number
  default = 2
}

variable "network" {
  type        = bool
  default     = true
  description = "Scripts reach the network (packages); false: nothing but this machine's guest agent port."
}

variable "port" {
  type        = number
  default     = 15000
  description = "A free port of this machine's loopback, for the guest agent."
}

variable "boot_timeout_s" {
  type    = number
  default = 300
}

locals {
  restrict = var.network ? "off" : "on"
  # Applications need SSE4.2, which QEMU's default does not have.
  cpu  = var.accelerator == "kvm" ? "host" : "Nehalem"
  uefi = var.uefi == "" ? [] : [["-bios", var.uefi]]
}

source "qemu" "guest" {
  disk_image       = true
  iso_url          = var.disk
  iso_checksum     = var.checksum
  skip_resize_disk = true
  format           = "qcow2"
  disk_discard     = "unmap"
  disk_cache       = "unsafe"
  output_directory = var.output
  vm_name          = "guest.qcow2"

  accelerator  = var.accelerator
  machine_type = "q35"
  memory       = var.memory_mib
  cpus         = var.cpus
  net_device   = "virtio-net-pci"
  headless     = true
  disable_vnc  = true

  qemuargs = concat([
    ["-nodefaults"],
    ["-display", "none"],
    ["-vnc", "none"],
    ["-cpu", local.cpu],
    ["-netdev", "user,id=user.0,restrict=${local.restrict},hostfwd=tcp:127.0.0.1:${var.port}-:5000"],
    ["-device", "virtio-net-pci,netdev=user.0,romfile="],
    ["-device", "virtio-rng-pci"],
    ["-serial", "file:${var.output}/console.log"],
    # By a file: the command line can be read by every user of this machine.
    ["-fw_cfg", "name=opt/io.systemd.credentials/osgym.token,file=${var.token_file}"],
  ], local.uefi)

  # There is no sshd inside; the guest agent does what is asked.
  communicator     = "none"
  shutdown_timeout = "5m"
}

build {
  sources = ["source.qemu.guest"]

  provisioner "shell-local" {
    environment_vars = [
      "PACKER_FOLDER=${abspath(path.root)}",
      "OSGYM_PROVISION=${jsonencode(var.provision)}",
      "OSGYM_FILES=${var.files}",
      "OSGYM_TOKEN_FILE=${var.token_file}",
      "OSGYM_PORT=${var.port}",
      "OSGYM_CONSOLE=${var.output}/console.log",
      "OSGYM_BOOT_TIMEOUT_S=${var.boot_timeout_s}",
    ]
    inline = ["exec python3 \"$PACKER_FOLDER/provision.py\""]
  }
}
