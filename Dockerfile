# The service of a model: docs/serving.md
FROM python:3.11-slim

# The index of PyTorch's CPU builds (see pytorch.org); without it pip brings CUDA, some gigabytes.
ARG TORCH_INDEX=""
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0

WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
# the versions that the tests ran with; the hashes of constraints.txt cannot cover this folder
RUN grep -oE '^[A-Za-z0-9._-]+==[^ ;\\]+' constraints.txt > pins.txt \
    && pip install --no-cache-dir --constraint pins.txt '.[serve]' \
    && rm -rf /source

RUN useradd --create-home --uid 1000 serve
USER serve
WORKDIR /home/serve
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# inside a container the network in front decides who reaches it
CMD ["unexposed", "serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
