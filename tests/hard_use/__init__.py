"""The worst that hard use has done to this project, played again through the command line.

`python -m tests.hard_use` plays every scene on a scratch folder and prints what held.
"""
