"""Desktops in the trainers of others, each in the form that the framework has: see ``docs/trainers.md``.

========================================  ==================================  =============
module                                    what it has                         extra
========================================  ==================================  =============
``osgym_sdk.integrations.trl``            ``environment_factory`` of GRPO     ``trl``
``osgym_sdk.integrations.verl``           agent loop                          ``verl``
``osgym_sdk.integrations.verifiers``      taskset and environment             ``verifiers``
``osgym_sdk.integrations.openenv``        environment and its server          ``openenv``
``osgym_sdk.integrations.skyrl``          text environment of SkyRL Gym       ``skyrl``
``osgym_sdk.integrations.inspect``        sandbox, tasks and scorer           ``inspect``
========================================  ==================================  =============

Importing this package imports no framework, importing a module of it that module's only.
"""
