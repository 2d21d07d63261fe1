"""Speed, as ratios to a bare loop or to `import dagster` measured in the same run: machines are noisy, ratios less so.

`python -m benchmarks` measures, `python -m benchmarks --smoke` does so in a small size to see that all of it works.
"""
