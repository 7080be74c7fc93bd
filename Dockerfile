# bert_tf for NVIDIA GPUs, and for CPUs: docker build -t bert-tf .
FROM python:3.11-slim
COPY . /src
RUN pip install --no-cache-dir "/src[huggingface]" "tensorflow[and-cuda]" && rm -r /src
CMD ["bert-tf", "--help"]
