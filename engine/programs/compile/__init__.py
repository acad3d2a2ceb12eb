"""Compiles statements of a program to text, modules and unions."""
