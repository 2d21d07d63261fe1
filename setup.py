"""The packages of the wheel: those below oloproof_dagster/ are found, the two top folders are mapped into it."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["oloproof_dagster*"]), "oloproof_dagster.assets", "oloproof_dagster.resources"])
