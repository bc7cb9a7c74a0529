# For Packer 1.7 and later, once per machine: packer init images/packer/plugins.pkr.hcl
# In a file of its own: Debian's Packer 1.6.6 has these builders built in and does not know the block.
packer {
  required_version = ">= 1.7.0"
  required_plugins {
    qemu = {
      source  = "github.com/hashicorp/qemu"
      version = "~> 1.1"
    }
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = "~> 1.3"
    }
    googlecompute = {
      source  = "github.com/hashicorp/googlecompute"
      version = "~> 1.1"
    }
  }
}
