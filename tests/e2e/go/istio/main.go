// What Istio makes of manifests, by Istio's own code and without a cluster:
//
//	istio inject < MANIFESTS          the workloads as its webhook would let them in, as YAML
//	istio push < MANIFESTS            what istiod would push to the Envoy of each pod that was so injected, as JSON
//	istio deploy < MANIFESTS          what istiod makes of each Gateway of the Gateway API, its Deployment among it, as YAML
//	istio charts FOLDER               Istio's Helm charts, to be rendered
//
// Manifests are all that is in the cluster, with both ConfigMaps of istiod's chart: mesh config and injection templates.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/gateway-api/pkg/consts"
	"sigs.k8s.io/yaml"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/manifests"
	"istio.io/istio/pilot/pkg/config/kube/gatewaycommon"
	"istio.io/istio/pilot/pkg/model"
	v3 "istio.io/istio/pilot/pkg/xds/v3"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pilot/test/xdstest"
	"istio.io/istio/pkg/config/constants"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/gvr"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/inject"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/revisions"
	"istio.io/istio/pkg/spiffe"
	"istio.io/istio/pkg/test"
	"istio.io/istio/pkg/util/sets"
)

const (
	version   = "1.31.0" // as which Envoys present themselves
	separator = "\n---\n"
)

func main() {
	options := log.DefaultOptions() // to stdout, unless told otherwise
	options.OutputPaths = []string{"stderr"}
	options.SetDefaultOutputLevel(log.OverrideScopeName, log.WarnLevel)
	err := log.Configure(options)
	arguments := append(os.Args[1:], "", "")
	switch {
	case err != nil:
	case arguments[0] == "charts":
		err = os.CopyFS(arguments[1], manifests.FS)
	case arguments[0] == "deploy":
		err = deploy(os.Stdin, os.Stdout)
	case arguments[0] == "inject":
		err = injectAll(os.Stdin, os.Stdout)
	case arguments[0] == "push":
		err = push(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("push, inject, deploy or charts, not %q", arguments[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A cluster, as its manifests have it.
type cluster struct {
	mesh       *meshconfig.MeshConfig
	templates  inject.Config
	values     inject.ValuesConfig
	istio      []string // for istiod's config store
	kubernetes []string // for its service registry
	pods       []*corev1.Pod
}

func read(in io.Reader) (*cluster, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	read := &cluster{}
	for _, document := range strings.Split(string(text), separator) {
		var object struct {
			metav1.TypeMeta
			Metadata metav1.ObjectMeta
			Data     map[string]string
		}
		if err = yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, err
		}
		switch {
		case object.Kind == "":
			continue
		case strings.Contains(object.APIVersion, "istio.io/"):
			read.istio = append(read.istio, document)
			continue
		case object.Kind == "ConfigMap" && object.Metadata.Name == "istio":
			read.mesh, err = mesh.ApplyMeshConfigDefaults(object.Data["mesh"])
		case object.Kind == "ConfigMap" && object.Metadata.Name == "istio-sidecar-injector":
			if read.templates, err = inject.UnmarshalConfig([]byte(object.Data["config"])); err == nil {
				read.values, err = inject.NewValuesConfig(object.Data["values"])
			}
		case object.Kind == "Pod":
			pod := &corev1.Pod{}
			err = yaml.UnmarshalStrict([]byte(document), pod)
			read.pods = append(read.pods, pod)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.Kind, object.Metadata.Name, err)
		}
		read.kubernetes = append(read.kubernetes, document)
	}
	if read.mesh == nil || read.templates.Templates == nil {
		return nil, fmt.Errorf("the ConfigMaps istio and istio-sidecar-injector are missing")
	}
	return read, nil
}

// As `istioctl kube-inject` does it.
func injectAll(in io.Reader, out io.Writer) error {
	cluster, err := read(in)
	if err != nil {
		return err
	}
	objects := bytes.NewBufferString(strings.Join(cluster.kubernetes, separator))
	warn := func(warning string) { fmt.Fprintln(os.Stderr, warning) }
	return inject.IntoResourceFile(
		nil, cluster.templates.Templates, cluster.values, "default", cluster.mesh, objects, out, warn)
}

// By istiod's own controller. What it applies is taken at its client, which has no server behind it.
func deploy(in io.Reader, out io.Writer) error {
	cluster, err := read(in)
	if err != nil {
		return err
	}
	var applied []string
	err = test.Wrap(func(t test.Failer) {
		istiod := start(t, cluster)
		client := istiod.KubeClient()
		client.Dynamic().(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*",
			func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetResource() != gvr.KubernetesGateway { // which it only marks as its own
					object, err := yaml.JSONToYAML(action.(clienttesting.PatchAction).GetPatch())
					if err != nil {
						t.Fatal(err)
					}
					applied = append(applied, string(object))
				}
				return true, &unstructured.Unstructured{}, nil
			})
		config := inject.WebhookConfig{
			Templates:  cluster.templates.Templates,
			Values:     cluster.values,
			MeshConfig: cluster.mesh,
		}
		stop := test.NewStop(t)
		tags := revisions.NewTagWatcher(client, "", "istio-system")
		controller := gatewaycommon.NewDeploymentController(client, constants.DefaultClusterName, istiod.Env(),
			func() inject.WebhookConfig { return config }, func(func()) {}, tags, "", "istio-system")
		client.RunAndWait(stop)
		gateways, err := client.GatewayAPI().GatewayV1().Gateways("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, gateway := range gateways.Items {
			if err := controller.Reconcile(types.NamespacedName{Namespace: gateway.Namespace, Name: gateway.Name}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, strings.Join(applied, separator))
	return err
}

// The discovery server that Istio's own tests use: the real one, with a Kubernetes API in memory.
func start(t test.Failer, cluster *cluster) *xds.FakeDiscoveryServer {
	return xds.NewFakeDiscoveryServer(t, xds.FakeOptions{
		KubernetesObjectString:     strings.Join(cluster.kubernetes, separator),
		ConfigString:               strings.Join(cluster.istio, separator),
		MeshConfig:                 cluster.mesh,
		DisableSecretAuthorization: true, // the gateway's Role is Istio's business
		KubeClientModifier:         withGatewayAPI,
	})
}

// Istio goes by the version in the definitions' annotations, which its fake ones do not have.
func withGatewayAPI(client kube.Client) {
	client.Metadata().(*metadatafake.FakeMetadataClient).PrependReactor("*", "customresourcedefinitions",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			if made, ok := action.(clienttesting.CreateAction); ok { // an update is one, too
				definition := made.GetObject().(*metav1.PartialObjectMetadata)
				definition.Annotations = map[string]string{consts.BundleVersionAnnotation: consts.BundleVersion}
			}
			return false, nil, nil
		})
}

// What is pushed to one Envoy, by kind.
type resources map[string][]json.RawMessage

func push(in io.Reader, out io.Writer) error {
	cluster, err := read(in)
	if err != nil {
		return err
	}
	pushed := map[string]resources{}
	err = test.Wrap(func(t test.Failer) {
		istiod := start(t, cluster)
		for _, pod := range cluster.pods {
			if kind := kindOf(pod); kind != "" {
				pushed[pod.Name] = pushTo(t, istiod, pod, kind)
			}
		}
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(pushed)
}

// As what its Envoy is started: `proxy router` or `proxy sidecar`.
func kindOf(pod *corev1.Pod) model.NodeType {
	if container := inject.FindSidecar(pod); container != nil {
		return model.NodeType(container.Args[1])
	}
	return ""
}

func pushTo(t test.Failer, istiod *xds.FakeDiscoveryServer, pod *corev1.Pod, kind model.NodeType) resources {
	proxy := istiod.SetupProxy(&model.Proxy{
		Type:             kind,
		ID:               pod.Name + "." + pod.Namespace,
		IPAddresses:      []string{pod.Status.PodIP},
		ConfigNamespace:  pod.Namespace,
		DNSDomain:        pod.Namespace + ".svc." + constants.DefaultClusterLocalDomain,
		Labels:           pod.Labels,
		VerifiedIdentity: &spiffe.Identity{Namespace: pod.Namespace, ServiceAccount: pod.Spec.ServiceAccountName},
		Metadata: &model.NodeMetadata{
			IstioVersion:   version,
			Namespace:      pod.Namespace,
			Labels:         pod.Labels,
			ServiceAccount: pod.Spec.ServiceAccountName,
			ClusterID:      constants.DefaultClusterName,
		},
	})
	listeners := istiod.Listeners(proxy)
	wanted := sets.New[string]()
	for _, listener := range listeners {
		wanted.InsertAll(xdstest.ExtractListenerSecretResources(t, listener)...)
	}
	generated, _, err := istiod.Discovery.Generators[v3.SecretType].Generate(
		proxy, &model.WatchedResource{ResourceNames: wanted}, &model.PushRequest{Forced: true, Push: istiod.PushContext()})
	if err != nil {
		t.Fatal(err)
	}
	secrets := make([]proto.Message, 0, len(generated))
	for _, each := range generated {
		secret, err := each.Resource.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	return resources{
		"listeners": raw(t, listeners),
		"routes":    raw(t, istiod.RoutesFromListeners(proxy, listeners)),
		"clusters":  raw(t, istiod.Clusters(proxy)),
		"endpoints": raw(t, istiod.Endpoints(proxy)),
		"secrets":   raw(t, secrets),
	}
}

func raw[M proto.Message](t test.Failer, messages []M) []json.RawMessage {
	written := make([]json.RawMessage, 0, len(messages))
	for _, message := range messages {
		one, err := protojson.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, one)
	}
	return written
}
